"""Operations on many objects and presigned URLs: the functions behind the command line."""
