"""Messages and names, from gRPC to the remoting protocol and back."""
