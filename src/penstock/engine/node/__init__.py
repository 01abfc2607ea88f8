"""Resources that the processes of a machine share: connections, memory for reading ahead, a store's request rate."""
