# METADATA
# title: Labels
# description: The labels that a view has to be judged by.
package cmf.lib.labels

# METADATA
# title: Labels in force
# description: Those of the message and of its session together; undefined when neither was granted [POL-23].
in_force := _of_message | _of_session if _known

_known if is_array(input.extensions.security.labels)

_known if is_array(input.session.labels)

_of_message contains label if some label in input.extensions.security.labels

_of_session contains label if some label in input.session.labels
