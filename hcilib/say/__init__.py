"""Turn rows of tables into sentences for people; analysis returns values and codes."""
