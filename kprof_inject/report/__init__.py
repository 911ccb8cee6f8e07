"""Reports for people and programs: terminal, HTML, comparisons and explanations."""
