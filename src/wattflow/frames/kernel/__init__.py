"""The compiled simulation of a frame: components, messages, mechanisms. ``loop`` drives it, ``tables`` holds its state."""
