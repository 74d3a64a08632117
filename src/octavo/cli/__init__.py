"""What people type: `octavo generate`, `chat`, `pull`, `models`. No scheduling and no arrays here."""
