"""The declarations of request and response headers, a module a family. Each header is declared once, here."""
