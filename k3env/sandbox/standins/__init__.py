"""Programs that are copied into a tray and stand there for the real ones."""
