"""Windows of chunks that zarr reads over obstore and decodes itself."""

from windows import read

read()
