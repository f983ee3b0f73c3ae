"""What a run leaves behind: records, the run directory, and the numbers made from them."""
