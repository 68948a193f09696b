package cmf.rules.data.sql_write_test

import data.cmf.rules.data.sql_write

_settings := {"reading_tools": ["tool://db/read_*"], "arguments": ["sql", "query"]}

_codes(view) := {effect.code | some effect in denials} if {
	denials := sql_write.deny with input as view with data.cmf.defaults.data.sql_write as _settings
}

_of(text) := _codes({"kind": "tool_call", "uri": "tool://db/read_query", "arguments": {"sql": text}})

test_denied_writes if {
	every text in [
		"DELETE FROM users", "  update users set a = 1", "drop table users", "PRAGMA writable_schema = 1",
		"with gone as (delete from users returning *) select * from gone", "explain analyze delete from users",
		"select * into outfile '/tmp/x' from users", "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "", "vacuum",
	] {
		_of(text) == {"data.sql-write"}
	}
}

test_denied_several if {
	_of("select 1; select 2") == {"data.sql-write.several"}
	"data.sql-write.several" in _of("select 1; drop table users")
}

test_denied_comments if {
	_of("select * from users -- where id = 1") == {"data.sql-write.comment"}
	"data.sql-write.comment" in _of("select 1 /*! into outfile 'x' */")
}

test_denied_unreadable if {
	_of(`select '\' ' , 1 from t where a = ''`) == {"data.sql-write.unreadable"}
	_of("select 'it") == {"data.sql-write.unreadable"}
	_of("select $$x$$") == {"data.sql-write.unreadable"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "arguments": {"sql": "drop table users"}}) == {"data.sql-write"}
}

test_allowed_reads if {
	every text in [
		"SELECT * FROM users WHERE name = 'O''Brien; drop table x -- no'", "select replace(a, 'x', 'y') from t;",
		"with a as (select 1) select * from a", "(select 1) union (select 2)", "show tables", "explain select 1",
		"select update_time, deleted, \"create\" from t where note like '%insert into%'",
	] {
		_of(text) == set()
	}
}

test_allowed_for_tools_that_may_write if {
	_codes({"kind": "tool_call", "uri": "tool://db/write_query", "arguments": {"sql": "drop table users"}}) == set()
}

test_allowed_without_arguments if {
	_codes({"kind": "tool_call", "uri": "tool://db/read_query"}) == set()
	_codes({"kind": "tool_call", "uri": "tool://db/read_query", "arguments": {"sql": 1}}) == set()
}

test_denied_functions_that_act if {
	every text in [
		"select pg_read_file('/etc/passwd')", "SELECT * FROM dblink_exec('x', 'y')", "select nextval ('s')",
		"select load_extension('x')", "select 1, xp_cmdshell('x')",
	] {
		_of(text) == {"data.sql-write.function"}
	}
}

test_denied_signs_that_are_white_space_to_some if {
	_of("explain analyze\u00a0delete from users") == {"data.sql-write.unreadable"}
	"data.sql-write.unreadable" in _of("select 1\u0000")
}

test_denied_in_lists_objects_and_other_case if {
	every arguments in [
		{"sql": ["select 1", "drop table users"]},
		{"query": {"text": "drop table users"}},
		{"SQL": "drop table users"},
	] {
		_codes({"kind": "tool_call", "uri": "tool://db/read_query", "arguments": arguments}) == {"data.sql-write"}
	}
}

test_allowed_looks_of_sqlite if {
	_of("pragma table_info(users) = 1") == {"data.sql-write"}
	every text in ["PRAGMA table_info('users');", "pragma table_list"] {
		_of(text) == set()
	}
}

test_allowed_names_like_functions_that_act if {
	_of("select nextval, my_nextval(1) from t where set_config_id = 'pg_sleep(1)'") == set()
}
