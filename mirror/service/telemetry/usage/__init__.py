"""Resources that the processes use: memory, CPU time, open files, the garbage collector."""
