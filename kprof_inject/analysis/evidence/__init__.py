"""What a launch did, by evidence from below TTGIR: machine code, counters and samples."""
