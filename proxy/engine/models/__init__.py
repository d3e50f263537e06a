"""What is known of the upstream's models: windows, and how their tokens compare with our count."""
