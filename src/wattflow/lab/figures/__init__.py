"""What a run says: figures, ideal times, watts over time, statistics."""
