"""Records as files in a folder, each record exactly once: `FileSink`, its formats, folders and file systems."""
