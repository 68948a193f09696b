package cmf.lib.pii_test

import data.cmf.lib.pii

_cards := {
	"4111 1111 1111 1111",
	"4012888888881881",
	"5555-5555-5555-4444",
	"2223003122003222",
	"378282246310005",
	"3714 496353 98431",
	"6011111111111117",
	"3530 1113 3330 0000",
	"30569309025904",
	"6200000000000005",
}

_ibans := {
	"GB29NWBK60161331926819",
	"DE89 3704 0044 0532 0130 00",
	"NO9386011117947",
	"MT84MALT011000012345MTLCAST001S",
}

_found(text, type) := {found.value | some found in everything; found.type == type} if {
	everything := pii.in_content with input as {"content": text}
}

test_cards_are_found if {
	every card in _cards {
		_found(concat("", ["pay with ", card, ", please"]), "payment_card") == {card}
	}
}

test_each_of_a_list_is_found if {
	_found("4012888888881881\n378282246310005\n6011111111111117", "payment_card") == {
		"4012888888881881",
		"378282246310005",
		"6011111111111117",
	}
}

test_a_wrong_check_digit_is_no_card if {
	every text in ["4111 1111 1111 1112", "4012888888881882", "378282246310006"] {
		_found(text, "payment_card") == set()
	}
}

test_numbers_inside_something_longer_are_no_cards if {
	every text in [
		"14012888888881881",
		"40128888888818810",
		"0.4012888888881881",
		"4012888888881881.5",
		"id_4012888888881881",
		"4012888888881881a",
		"4012-8888-8888-1881-0000",
		"2024-01-02T4012888888881881",
	] {
		_found(text, "payment_card") == set()
	}
}

test_other_long_numbers_are_no_cards if {
	every text in ["0000 0000 0000 0000", "4444444444444444", "1700000000000000", "9999999999999995", "1234567812345670"] {
		_found(text, "payment_card") == set()
	}
}

test_ibans_are_found if {
	every iban in _ibans {
		_found(concat("", ["to ", iban, " today"]), "iban") == {iban}
	}
}

test_an_iban_with_a_wrong_checksum_or_length_is_none if {
	every text in ["GB29NWBK60161331926818", "GB29NWBK6016133192681", "XX29NWBK60161331926819"] {
		_found(text, "iban") == set()
	}
}

test_social_security_numbers_are_found if {
	_found("SSN 536-90-4399.", "us_ssn") == {"536-90-4399"}
}

test_ranges_never_assigned_are_no_social_security_numbers if {
	every text in [
		"000-12-3456",
		"666-12-3456",
		"912-12-3456",
		"536-00-4399",
		"536-90-0000",
		"1536-90-4399",
		"536-90-43991",
	] {
		_found(text, "us_ssn") == set()
	}
}

test_plain_text_has_none if {
	text := "Call 555-0134 at 10:30 on 2024-05-06, order 12345, total 99.95"
	count(pii.in_content) == 0 with input as {"content": text}
}

test_cards_and_numbers_in_other_groups_are_found if {
	_found("4111.1111.1111.1111", "payment_card") == {"4111.1111.1111.1111"}
	_found("a=1&card_number=4111111111111111&b=2", "payment_card") == {"4111111111111111"}
	_found("SSN: 536 90 4399", "us_ssn") == {"536 90 4399"}
	_found("Social Security number 536904399.", "us_ssn") == {"536904399"}
}

test_other_numbers_behind_such_names_are_none if {
	every text in ["order=4111111111111111", "SSN 900904399", "ssn 5369043990", "536 90 4399", "SSN of 5 people"] {
		_found(text, "payment_card") | _found(text, "us_ssn") == set()
	}
}
