//! Readers of pickle, MessagePack and protobuf, as far as the server writes them.

#![allow(dead_code, reason = "every test file takes what it needs")]

use serde_json::{Map, Number, Value, json};

/// JSON cannot express infinity; the recording writes a text.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| json!(if value < 0.0 { "-inf" } else { "inf" }), Value::Number)
}

/// A pickle of protocol 2.
pub fn pickle(mut bytes: &[u8]) -> Value {
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at(count);
        bytes = rest;
        taken
    };
    let (mut stack, mut marks): (Vec<Value>, Vec<usize>) = (Vec::new(), Vec::new());
    loop {
        match take(1)[0] {
            0x80 => assert_eq!(take(1), [2], "protocol 2"),
            b']' => stack.push(json!([])),
            b'}' => stack.push(json!({})),
            b'(' => marks.push(stack.len()),
            b'e' => {
                let items = stack.split_off(marks.pop().unwrap());
                stack.last_mut().unwrap().as_array_mut().unwrap().extend(items);
            }
            b'u' => {
                let items = stack.split_off(marks.pop().unwrap());
                let dict = stack.last_mut().unwrap().as_object_mut().unwrap();
                for pair in items.chunks(2) {
                    dict.insert(pair[0].as_str().unwrap().to_owned(), pair[1].clone());
                }
            }
            0x86 => {
                let pair = stack.split_off(stack.len() - 2);
                stack.push(Value::Array(pair));
            }
            b'X' => {
                let len = u32::from_le_bytes(take(4).try_into().unwrap());
                stack.push(json!(std::str::from_utf8(take(len as usize)).unwrap()));
            }
            b'J' => stack.push(json!(i32::from_le_bytes(take(4).try_into().unwrap()))),
            0x8a => {
                assert_eq!(take(1), [8]);
                stack.push(json!(i64::from_le_bytes(take(8).try_into().unwrap())));
            }
            b'G' => stack.push(float(f64::from_be_bytes(take(8).try_into().unwrap()))),
            0x88 => stack.push(json!(true)),
            0x89 => stack.push(json!(false)),
            b'N' => stack.push(Value::Null),
            b'.' => {
                assert!(bytes.is_empty() && marks.is_empty() && stack.len() == 1);
                return stack.remove(0);
            }
            other => panic!("opcode {other:#x}"),
        }
    }
}

/// MessagePack.
pub fn msgpack(mut bytes: &[u8]) -> Value {
    let value = msgpack_value(&mut bytes);
    assert!(bytes.is_empty());
    value
}

fn msgpack_value(bytes: &mut &[u8]) -> Value {
    fn number<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        let (taken, rest) = bytes.split_at(N);
        *bytes = rest;
        taken.try_into().unwrap()
    }
    let text = |bytes: &mut &[u8], len: usize| {
        let (taken, rest) = bytes.split_at(len);
        *bytes = rest;
        json!(std::str::from_utf8(taken).unwrap())
    };
    let array = |bytes: &mut &[u8], len: usize| Value::Array((0..len).map(|_| msgpack_value(bytes)).collect());
    let map = |bytes: &mut &[u8], len: usize| {
        let mut map = Map::new();
        for _ in 0..len {
            let key = msgpack_value(bytes).as_str().unwrap().to_owned();
            map.insert(key, msgpack_value(bytes));
        }
        Value::Object(map)
    };
    let [kind] = number::<1>(bytes);
    match kind {
        0..=0x7f => json!(kind),
        0x80..=0x8f => map(bytes, usize::from(kind & 15)),
        0x90..=0x9f => array(bytes, usize::from(kind & 15)),
        0xa0..=0xbf => text(bytes, usize::from(kind & 31)),
        0xc0 => Value::Null,
        0xc2 => json!(false),
        0xc3 => json!(true),
        0xcb => float(f64::from_be_bytes(number(bytes))),
        0xcc => json!(number::<1>(bytes)[0]),
        0xcd => json!(u16::from_be_bytes(number(bytes))),
        0xce => json!(u32::from_be_bytes(number(bytes))),
        0xcf => json!(u64::from_be_bytes(number(bytes))),
        0xd9 => {
            let [len] = number::<1>(bytes);
            text(bytes, usize::from(len))
        }
        0xda => {
            let len = u16::from_be_bytes(number(bytes));
            text(bytes, usize::from(len))
        }
        0xdc => {
            let len = u16::from_be_bytes(number(bytes));
            array(bytes, usize::from(len))
        }
        0xdd => {
            let len = u32::from_be_bytes(number(bytes));
            array(bytes, len as usize)
        }
        0xde => {
            let len = u16::from_be_bytes(number(bytes));
            map(bytes, usize::from(len))
        }
        0xe0.. => json!(kind as i8),
        other => panic!("type {other:#x}"),
    }
}

/// A protobuf message: fields with their wire type's bytes, as `protoc --decode_raw` shows them.
#[derive(Debug, Clone, PartialEq)]
pub struct Message(Vec<(u32, Raw)>);

#[derive(Debug, Clone, PartialEq)]
enum Raw {
    Int(i64),
    Float(f32),
    Bytes(Vec<u8>),
}

impl Message {
    pub fn of(mut bytes: &[u8]) -> Message {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let raw = match tag & 7 {
                0 => Raw::Int(varint(&mut bytes) as i64),
                2 => {
                    let len = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(len);
                    bytes = rest;
                    Raw::Bytes(value.to_vec())
                }
                5 => {
                    let (value, rest) = bytes.split_first_chunk().unwrap();
                    bytes = rest;
                    Raw::Float(f32::from_le_bytes(*value))
                }
                kind => panic!("wire type {kind}"),
            };
            fields.push(((tag >> 3) as u32, raw));
        }
        Message(fields)
    }

    fn all(&self, field: u32) -> impl Iterator<Item = &Raw> {
        self.0.iter().filter(move |(number, _)| *number == field).map(|(_, raw)| raw)
    }

    pub fn int(&self, field: u32) -> i64 {
        self.all(field).last().map_or(0, |raw| if let Raw::Int(value) = raw { *value } else { panic!("{raw:?}") })
    }

    pub fn float(&self, field: u32) -> f32 {
        self.all(field).last().map_or(0.0, |raw| if let Raw::Float(value) = raw { *value } else { panic!("{raw:?}") })
    }

    fn lists(&self, field: u32) -> Vec<&[u8]> {
        fn bytes(raw: &Raw) -> &[u8] {
            let Raw::Bytes(bytes) = raw else { panic!("{raw:?}") };
            bytes
        }
        self.all(field).map(bytes).collect()
    }

    pub fn bytes(&self, field: u32) -> Vec<u8> {
        self.lists(field).concat()
    }

    pub fn texts(&self, field: u32) -> Vec<String> {
        self.lists(field).into_iter().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    pub fn text(&self, field: u32) -> String {
        self.texts(field).into_iter().next().unwrap_or_default()
    }

    pub fn messages(&self, field: u32) -> Vec<Message> {
        self.lists(field).into_iter().map(Message::of).collect()
    }

    pub fn doubles(&self, field: u32) -> Vec<f64> {
        self.bytes(field).chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}
