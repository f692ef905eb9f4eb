"""One module per corpus: its facts as data, and the builder that reads its official files."""
