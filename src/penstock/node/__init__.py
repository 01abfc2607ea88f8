"""What the processes of one machine share: connections, memory for reading ahead, and a store's request rate."""
