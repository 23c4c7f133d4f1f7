//! The suite every driver passes.
