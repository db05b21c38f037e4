"""The decision core: State and its compiled transitions. It never reads a clock, a file or a socket."""
