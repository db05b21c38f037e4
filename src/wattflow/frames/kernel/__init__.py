"""The compiled simulation of a frame. ``frame_loop`` drives it, ``frame_tables`` holds its state."""
