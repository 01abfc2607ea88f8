"""Objects and blocks on local disk, shared by the processes of a machine; and what reads through them."""
