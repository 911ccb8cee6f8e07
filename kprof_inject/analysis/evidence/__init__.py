"""Evidence on a launch from below TTGIR: machine code, counters and samples."""
