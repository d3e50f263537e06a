"""What a summary is asked for with, made of, and held against."""
