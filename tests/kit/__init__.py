"""What the tests stand on: private stores, a clock they own, and a bed for one store under test."""
