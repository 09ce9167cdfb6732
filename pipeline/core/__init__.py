"""What every room builds on: errors, files, resume points, settings, faults; imports nothing of ours."""
