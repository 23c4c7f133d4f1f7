//! The plaintext protocol, row by row of the table of what carbon and its peers make of a line.

use carbon::{LineDecoder, MAX_LINE_BYTES, parse_datagram};
use expect_test::{Expect, expect};

use crate::seen::{NOW, seen};

fn check(stream: impl AsRef<[u8]>, expected: Expect) {
    expected.assert_eq(&seen(|sink| LineDecoder::new().finish(stream.as_ref(), NOW, sink)));
}

#[test]
fn a_line_is_a_point() {
    check(
        "servers.a.cpu 1.5 1700000000\n",
        expect![[r#"
        servers.a.cpu 1.5 1700000000
    "#]],
    );
}

#[test]
fn any_whitespace_separates_and_surrounds_fields() {
    check(
        "a 1 1700000000\r\n\ta \t 2\t1700000000  \n a\u{a0}3\u{2003}1700000000\u{3000}\na\x0b4\x0c1700000000\x1f\n",
        expect![[r#"
            a 1 1700000000
            a 2 1700000000
            a 3 1700000000
            a 4 1700000000
        "#]],
    );
}

#[test]
fn a_line_of_other_than_three_fields_is_rejected() {
    check(
        "a\na 1\na 1 1700000000 b\na b 1 1700000000\nb 1 1700000000\n",
        expect![[r#"
        bad_line: a
        bad_line: a 1
        bad_line: a 1 1700000000 b
        bad_line: a b 1 1700000000
        b 1 1700000000
    "#]],
    );
}

#[test]
fn an_empty_line_is_nothing() {
    check(
        "\n\r\n \t \n\na 1 1700000000\n\n",
        expect![[r#"
        a 1 1700000000
    "#]],
    );
}

#[test]
fn minus_one_is_now() {
    check(
        "a 1 -1\na 1 -1.5\na 1 -1.0\na 1 -2\na 1 0\na 1 -0.5\n",
        expect![[r#"
        a 1 1800000000
        a 1 1800000000
        a 1 1800000000
        a 1 -2
        a 1 0
        a 1 -1
    "#]],
    );
}

#[test]
fn a_timestamp_is_any_number_of_seconds() {
    check(
        "a 1 1700000000.9\na 1 1.7e9\na 1 1_700_000_000\na 1 +1700000000\na 1 17000000000\na 1 1e99\n",
        expect![[r#"
        a 1 1700000000
        a 1 1700000000
        a 1 1700000000
        a 1 1700000000
        a 1 17000000000
        a 1 9007199254740992
    "#]],
    );
    check(
        "a 1 N\na 1 nan\na 1 inf\na 1 -Infinity\na 1 1700000000x\na 1 now\nb 1 1700000000\n",
        expect![[r#"
        bad_timestamp: a 1 N
        bad_timestamp: a 1 nan
        bad_timestamp: a 1 inf
        bad_timestamp: a 1 -Infinity
        bad_timestamp: a 1 1700000000x
        bad_timestamp: a 1 now
        b 1 1700000000
    "#]],
    );
}

#[test]
fn a_value_is_what_python_reads_as_a_float() {
    check(
        "a 1. 1700000000\na .5 1700000000\na +1 1700000000\na 1e3 1700000000\na 1_000 1700000000\na -1E-2 1700000000\n",
        expect![[r#"
            a 1 1700000000
            a 0.5 1700000000
            a 1 1700000000
            a 1000 1700000000
            a 1000 1700000000
            a -0.01 1700000000
        "#]],
    );
    check(
        "a 0x1 1700000000\na U 1700000000\na 1,5 1700000000\na - 1700000000\nb 1 1700000000\n",
        expect![[r#"
        bad_value: a 0x1 1700000000
        bad_value: a U 1700000000
        bad_value: a 1,5 1700000000
        bad_value: a - 1700000000
        b 1 1700000000
    "#]],
    );
}

#[test]
fn infinities_are_values_and_nan_is_dropped() {
    check(
        "a inf 1700000000\na -Infinity 1700000000\na 1e400 1700000000\na nan 1700000000\na -NaN 1700000000\n",
        expect![[r#"
        a inf 1700000000
        a -inf 1700000000
        a inf 1700000000
        nan_value: a nan 1700000000
        nan_value: a -NaN 1700000000
    "#]],
    );
}

#[test]
fn a_name_reaches_the_sink_as_it_was_sent() {
    check(
        ".a..b. 1 1700000000\n../../x 1 1700000000\nn;a=b 1 1700000000\n\u{e9}.b 1 1700000000\na\x01b 1 1700000000\n",
        expect![[r#"
        .a..b. 1 1700000000
        ../../x 1 1700000000
        n;a=b 1 1700000000
        \xc3\xa9.b 1 1700000000
        a\x01b 1 1700000000
    "#]],
    );
}

#[test]
fn a_line_that_is_not_utf8_costs_only_itself() {
    check(
        b"a\xff 1 1700000000\nb 1 1700000000\n",
        expect![[r#"
        not_utf8: a\xff 1 1700000000
        b 1 1700000000
    "#]],
    );
}

#[test]
fn the_last_line_needs_no_lf() {
    check(
        "a 1 1700000000\nb 1 1700000000",
        expect![[r#"
        a 1 1700000000
        b 1 1700000000
    "#]],
    );
}

#[test]
fn a_line_as_long_as_allowed_is_taken_and_a_longer_one_skipped() {
    let line = |bytes: usize| format!("{} 1 1700000000\n", "a".repeat(bytes - 13));
    let stream = line(MAX_LINE_BYTES) + &line(MAX_LINE_BYTES + 1) + &line(100 * MAX_LINE_BYTES) + "b 1 1700000000\n";
    let text = seen(|sink| LineDecoder::new().finish(stream.as_bytes(), NOW, sink));
    let reasons: Vec<&str> = text.lines().map(|line| line.split_at(13).0).collect();
    assert_eq!(reasons, ["aaaaaaaaaaaaa", "line_too_long", "line_too_long", "b 1 170000000"]);
}

#[test]
fn a_long_line_never_needs_more_than_a_line_of_the_callers_memory() {
    let mut decoder = LineDecoder::new();
    let text = seen(|sink| {
        let chunk = [b'a'; MAX_LINE_BYTES + 1];
        assert_eq!(decoder.decode(&chunk[1..], NOW, sink), 0);
        for _ in 0..10 {
            assert_eq!(decoder.decode(&chunk, NOW, sink), chunk.len());
        }
        assert_eq!(decoder.decode(b" 1 1700000000\nb 1 1700000000\nc", NOW, sink), 29);
        decoder.finish(b"c 1 1700000000", NOW, sink);
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1..], ["b 1 1700000000", "c 1 1700000000"]);
}

#[test]
fn a_stream_that_ends_within_a_long_line_has_no_last_line() {
    let mut decoder = LineDecoder::new();
    let text = seen(|sink| {
        decoder.decode(&[b'a'; MAX_LINE_BYTES + 1], NOW, sink);
        decoder.finish(b"b 1 1700000000", NOW, sink);
        decoder.finish(b"c 1 1700000000", NOW, sink);
    });
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), ["c 1 1700000000"]);
}

#[test]
fn a_datagram_has_lines_and_the_last_needs_no_lf() {
    let check = |datagram: &[u8], expected: Expect| {
        expected.assert_eq(&seen(|sink| parse_datagram(datagram, NOW, sink)));
    };
    check(
        b"a 1 1700000000\nb 2 1700000000\r\nc 3 1700000000",
        expect![[r#"
        a 1 1700000000
        b 2 1700000000
        c 3 1700000000
    "#]],
    );
    check(
        b"a 1 1700000000\rb\xff 2 1700000000\rc 3 1700000000\n",
        expect![[r#"
        a 1 1700000000
        not_utf8: b\xff 2 1700000000
        c 3 1700000000
    "#]],
    );
    check(b"", expect![""]);
}
