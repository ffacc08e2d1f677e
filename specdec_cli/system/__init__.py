"""This machine: its power, memory, folders and BLAS."""
