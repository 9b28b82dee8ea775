"""Creates, changes and deletes resources of each CloudFormation type through the API of its service.

`table` has a row for each type, so a new type is a new row. `adapter` executes a row; a type whose calls cannot be
described by a row has its own class, in the module of its service.
"""
