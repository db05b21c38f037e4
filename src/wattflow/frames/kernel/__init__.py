"""The compiled simulation of a frame. ``loop`` drives it, ``tables`` holds its state."""
