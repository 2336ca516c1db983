"""Request and response headers, one module per family. Each header is declared exactly once."""
