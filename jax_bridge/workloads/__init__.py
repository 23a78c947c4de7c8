"""Small real programs that are worth breaking. Each is an ordinary script; none knows of coordlab."""
