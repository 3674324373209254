"""What the tests stand on: private stores, a clock they own, and a kit for one store under test."""
