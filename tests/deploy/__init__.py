"""The files of ``deploy/``, judged by the tools that read them."""
