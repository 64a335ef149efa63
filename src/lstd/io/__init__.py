"""Files that are written whole or not at all, and read only if no bit has changed.

In: bytes, JSON documents and arrays, and the paths to write them to.
Out: files on disk, and their content once it is checked; errors that name the file and what to do.
"""
