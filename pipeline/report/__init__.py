"""The report page: outputs, frames, figures, templates; imports core, labels, data, audits and config."""
