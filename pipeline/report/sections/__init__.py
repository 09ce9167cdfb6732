"""The sections of the page: each module makes what its template (templates/) shows of one dataset."""
