package cmf.lib_test

import data.cmf.lib

test_star_is_one_segment if {
	lib.uri_matches("tool://mail/send", "tool://*/send")
	lib.uri_matches("tool://mail/send_now", "tool://mail/send_*")
	not lib.uri_matches("tool://mail/eu/send", "tool://*/send")
}

test_two_stars_are_any_segments_even_none if {
	lib.uri_matches("tool://mail/send", "**")
	lib.uri_matches("file:///a/b/c", "file:///**")
	lib.uri_matches("file:///a/c", "file:///a/**/c")
	lib.uri_matches("file:///a/b/b/c", "file:///a/**/c")
	lib.uri_matches("file:///a", "file:///a/**")
	not lib.uri_matches("file:///b/c", "file:///a/**/c")
}

test_two_stars_inside_a_segment_are_one if {
	lib.uri_matches("tool://mail/send_now", "tool://mail/send**")
	not lib.uri_matches("tool://mail/send/now", "tool://mail/send**")
}

test_everything_else_is_literal if {
	not lib.uri_matches("tool://my_namespace/tool", "tool://my.namespace/too*")
	not lib.uri_matches("tool://a/b1", "tool://a/b[1]*")
	lib.uri_matches("tool://a/b[1]x", "tool://a/b[1]*")
	lib.uri_matches("tool://a/(b|c)+{2}^$\\d", "tool://*/(b|c)+{2}^$\\d")
	not lib.uri_matches("tool://a/bb", "tool://*/b?")
	lib.uri_matches("tool://a/.hidden", "tool://a/*")
}

test_case_counts if {
	not lib.uri_matches("tool://Mail/send", "tool://mail/*")
	not lib.uri_matches("tool://mail/send", "tool://mail/SEND")
}

test_a_pattern_matches_the_whole_uri if {
	not lib.uri_matches("xtool://a/b", "tool://a/*")
	not lib.uri_matches("tool://a/b/c", "tool://a/*")
	not lib.uri_matches("tool://a/b\nc/d", "tool://a/*")
	lib.uri_matches("tool://a/b\nc", "tool://a/*")
}

test_any_of_several if {
	lib.any_uri_matches("tool://a/b", ["tool://x/*", "tool://a/*"])
	not lib.any_uri_matches("tool://a/b", [])
}
