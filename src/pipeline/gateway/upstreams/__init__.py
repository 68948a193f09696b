"""What a judged request is sent to."""
