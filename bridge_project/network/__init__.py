"""Find addresses and certificates, and classify connections."""
