"""HTML report: one self-contained file that opens in any browser, without a network."""
