//! Prints the page docs/functions.md.

fn main() {
    print!("{}", render::functions_page());
}
