"""Whether verification itself can be believed: the wrong are to fail, the honest are not to."""
