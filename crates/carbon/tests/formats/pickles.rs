//! The pickle protocol, on pickles recorded from Python by `tests/record_pickles.py`.

use std::{fs, path::PathBuf};

use carbon::{encode, pickle::Decoder};
use expect_test::{Expect, expect};
use metric::Point;

use crate::seen::{NOW, seen};

fn decoded(pickled: &[u8]) -> String {
    seen(|sink| carbon::pickle::decode(pickled, NOW, sink))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pickles")
}

fn recorded(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("{name}.pickle"))).unwrap()
}

fn check(name: &str, expected: Expect) {
    expected.assert_eq(&decoded(&recorded(name)));
}

#[test]
fn every_protocol_and_every_form_says_the_same() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("same-") {
            continue;
        }
        count += 1;
        assert_eq!(
            decoded(&fs::read(&path).unwrap()),
            "servers.a.cpu 1.5 1700000000\nservers.b.cpu -2 1700000060\nservers.\\xc3\\xa9.cpu 3 1700000120\n",
            "{name}"
        );
    }
    assert_eq!(count, 6 * 7 + 1 + 6, "record_pickles.py was run");
}

#[test]
fn carbon_relay_ngs_frame_is_a_point() {
    check(
        "relay-ng",
        expect![[r#"
        servers.a.cpu 1.5 1700000000
    "#]],
    );
}

#[test]
fn each_item_stands_for_itself() {
    check(
        "items",
        expect![[r#"
            now 1 1800000000
            now.float 1 1800000000
            now.text 1 1800000000
            nan_value: (\'nan\', (1700000000, NaN))
            inf inf 1700000000
            true 1 1700000000
            large 1180591620717411300000 1700000000
            negative.large -1180591620717411300000 1700000000
            long -1099511627776 1099511627776
            bad_timestamp: (\'time.nan\', (NaN, 1))
            bad_timestamp: (\'time.inf\', (inf, 1))
            bad_timestamp: (\'time.none\', (None, 1))
            bad_timestamp: (\'time.text\', (\'soon\', 1))
            time.far 1 9007199254740992
            value.text 1.5 1700000000
            bad_value: (\'value.word\', (1700000000, \'many\'))
            bad_value: (\'value.list\', (1700000000, [1]))
            two 1 1700000000
            two 2 1700000060
            two.bad 1 1700000000
            bad_item: (\'two.bad\', (1700000000, 1), 2)
            list.of.three 1 1700000000
            list.of.three 2 1700000060
            bad_item: (\'flat\', 1700000000, 1)
            bad_item: (\'three\', (1700000000, 1, 2))
            bad_item: (\'one\',)
            bad_item: ()
            bad_item: \'text\'
            bad_item: None
            bad_item: {...}
            bad_item: (5, (1700000000, 1))
            name with spaces 1 1700000000
             1 1700000000
        "#]],
    );
}

#[test]
fn shared_values_are_read_wherever_they_are() {
    check(
        "shared",
        expect![[r#"
        shared 1 1700000000
        shared 1 1700000000
        other 1 1700000000
    "#]],
    );
}

#[test]
fn a_list_in_itself_is_a_bad_item() {
    check(
        "itself",
        expect![[r#"
        first 1 1700000000
        bad_item: [(\'first\', (1700000000, 1)), [(\'first\', ...), [..., ...]]]
    "#]],
    );
}

#[test]
fn an_empty_list_is_nothing() {
    check("empty", expect![""]);
}

#[test]
fn an_empty_name_reaches_the_sink() {
    assert_eq!(decoded(&recorded("empty-bytes-name")), " 1 1\n");
}

#[test]
fn a_pickle_that_is_not_a_list_is_rejected_as_a_whole() {
    check(
        "root-number",
        expect![[r#"
        bad_pickle: \x80\x02K\x05.
    "#]],
    );
    check(
        "root-dict",
        expect![[r#"
        bad_pickle: \x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01K\x02\x86q\x02s.
    "#]],
    );
    check(
        "cache-query",
        expect![[r#"
        bad_pickle: \x80\x05\x95)\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x04type\x94\x8c\x0bcache-query\x94\x8c\x06metric\x94\x8c\x03a.b\x94u.
    "#]],
    );
}

#[test]
fn nothing_is_ever_called() {
    for name in ["unsafe-global", "unsafe-stack-global", "unsafe-object", "unsafe-instance", "unsafe-encode"] {
        let text = decoded(&recorded(name));
        assert!(text.starts_with("unsafe_pickle: ") && text.lines().count() == 1, "{name}: {text}");
    }
}

#[test]
fn a_pickle_cut_anywhere_gives_no_point_and_one_rejection() {
    for name in ["same-protocol-0", "same-protocol-2", "same-protocol-5", "same-protocol-2-bytes", "items"] {
        let pickled = recorded(name);
        for cut in 0..pickled.len() {
            let text = decoded(&pickled[..cut]);
            assert!(text.starts_with("bad_pickle: ") && text.lines().count() == 1, "{name} cut at {cut}: {text}");
        }
    }
}

#[test]
fn broken_programs_are_rejected() {
    for program in [
        &b""[..],
        b".",
        b"(.",
        b"0.",
        b"1.",
        b"2.",
        b"a.",
        b"]a.",
        b"](a.",
        b"(]a.",
        b"e.",
        b"N(e.",
        b"s.",
        b"}Ns.",
        b"}(Nu.",
        b"]NNs.",
        b"t.",
        b"\x85.",
        b"(N\x86.",
        b"R.",
        b"h\0.",
        b"]q\xff.",
        b"]r\xff\xff\xff\xff.",
        b"p0\n.",
        b"]p-1\n.",
        b"]px\n.",
        b"\x94.",
        b"\x80\x06].",
        b"\x95\xff\0\0\0\0\0\0\0].",
        b"X\xff\xff\xff\xffa.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
        b"\x8b\xff\xff\xff\xff.",
        b"Sa\n.",
        b"S'a\n.",
        b"S'\\x4'\n.",
        b"V\\u00\n.",
        b"V\\ud800\n.",
        b"Ix\n.",
        b"I\n.",
        b"Fx\n.",
        b"L-L\n.",
        b"?.",
    ] {
        let text = decoded(program);
        assert!(text.starts_with("bad_pickle: "), "{}: {text}", program.escape_ascii());
    }
}

#[test]
fn text_is_unescaped_as_python_does() {
    // Protocol 0, by hand: Python's repr of a str, and raw-unicode-escape.
    let name = |text: &str| decoded(format!("(l({text}\n(I1\nI2\ntta.").as_bytes());
    assert_eq!(name(r"S'a\tb\n\x41\101\\\'\q'"), "a\\tb\\nAA\\\\\\'\\\\q 2 1\n");
    assert_eq!(name(r#"S"a'b""#), "a\\'b 2 1\n");
    assert_eq!(name(r"Va\u00e9\U0001f600\n"), "a\\xc3\\xa9\\xf0\\x9f\\x98\\x80\\\\n 2 1\n");
    assert_eq!(decoded(b"(l(Va\xe9\n(I1\nI2\ntta."), "a\\xc3\\xa9 2 1\n");
}

#[test]
fn long_integers_are_read_in_twos_complement() {
    let value = |bytes: &[u8]| {
        let long = [&[0x8a, bytes.len() as u8], bytes].concat();
        decoded(&[b"](U\x01aK\x01", &long[..], b"\x86\x86e."].concat())
    };
    assert_eq!(value(&[]), "a 0 1\n");
    assert_eq!(value(&[0xff]), "a -1 1\n");
    assert_eq!(value(&[0xff, 0x00]), "a 255 1\n");
    assert_eq!(value(&[0, 0, 0, 0, 0, 0, 0, 0x80]), "a -9223372036854776000 1\n");
    assert_eq!(value(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), "a 9223372036854776000 1\n");
    assert_eq!(value(&[0xff; 9]), "a -1 1\n");
    assert_eq!(value(&[0x7f; 255]), "a inf 1\n");
}

/// A list of `count` references to one item whose points are one shared pair: what a sender would write to have
/// a small frame expanded without end.
fn shared_points(count: usize) -> Vec<u8> {
    let mut pickled = b"\x80\x02](U\x01aK\x01K\x02\x86q\x00".to_vec();
    pickled.splice(3..3, *b"(");
    pickled.extend(b"h\x00".repeat(count));
    pickled.extend(b"tq\x01");
    pickled.extend(b"h\x01".repeat(count));
    pickled.extend(b"e.");
    pickled
}

#[test]
fn sharing_does_not_multiply_the_points_of_a_frame() {
    let pickled = shared_points(10_000);
    let text = decoded(&pickled);
    let points = text.lines().filter(|line| *line == "a 2 1").count();
    assert_eq!(points, pickled.len());
    assert!(text.lines().nth(points).unwrap().starts_with("frame_expands: "));
    assert_eq!(text.lines().count(), points + 1);
}

#[test]
fn sharing_does_not_multiply_the_names_of_a_frame() {
    let mut pickled = [b"\x80\x02](T\0\0\x01\0", &[b'n'; 65_536][..], b"K\x01K\x02\x86\x86q\0"].concat();
    pickled.extend(b"h\0".repeat(10_000));
    pickled.extend(b"e.");
    let text = decoded(&pickled);
    assert_eq!(text.lines().count(), 1024 + 1);
    assert!(text.lines().last().unwrap().starts_with("frame_expands: "));
}

#[test]
fn lists_of_lists_of_lists_cost_nothing() {
    // Each list holds the one before ten times: "billion laughs".
    let mut pickled = b"\x80\x02]q\x00".to_vec();
    for level in 1..100u8 {
        pickled.extend(b"](");
        pickled.extend([b'h', level - 1].repeat(10));
        pickled.extend([b'e', b'q', level]);
    }
    pickled.push(b'.');
    assert_eq!(decoded(&pickled).lines().count(), 10);
    // And a tower of tuples, which a recursive reader or destructor would fall from.
    let tower = [&b"("[..], b")", &[0x85].repeat(1_000_000), b"t."].concat();
    assert_eq!(decoded(&tower), "bad_item: (((...,),),)\n");
}

#[test]
fn a_text_that_is_encoded_many_times_is_rejected() {
    let mut pickled = b"\x80\x02]c_codecs\nencode\nq\x000X\x00\x01\x00\x00".to_vec();
    pickled.extend([b'a'; 256]);
    pickled.extend(b"q\x010X\x06\x00\x00\x00latin1q\x020(");
    pickled.extend(b"h\x00h\x01h\x02\x86R".repeat(100));
    pickled.extend(b"e.");
    assert!(decoded(&pickled).starts_with("bad_pickle: "));
}

#[test]
fn a_decoder_forgets_a_frame_before_the_next() {
    let mut decoder = Decoder::new();
    let good = recorded("same-protocol-0-bytes");
    let expected = decoded(&good);
    for name in ["items", "unsafe-object", "same-protocol-4", "itself", "shared"] {
        seen(|sink| decoder.decode(&recorded(name), NOW, sink));
        assert_eq!(seen(|sink| decoder.decode(b"h\x00.", NOW, sink)), "bad_pickle: h\\x00.\n", "after {name}");
        assert_eq!(seen(|sink| decoder.decode(&good, NOW, sink)), expected, "after {name}");
    }
}

#[test]
fn encoded_points_are_decoded() {
    let mut frame = Vec::new();
    let points = [
        (&b"a.b"[..], Point { time: 1_700_000_000, value: 1.5 }),
        (b"c", Point { time: 1 << 40, value: f64::INFINITY }),
    ];
    encode::pickle(&mut frame, points);
    assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
    assert_eq!(decoded(&frame[4..]), "a.b 1.5 1700000000\nc inf 1099511627776\n");
}
