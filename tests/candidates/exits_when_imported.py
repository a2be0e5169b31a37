# expect: DOES NOT BUILD|CRASHED import_failed,process_died: ends the program while it is imported
import sys

sys.exit(0)
