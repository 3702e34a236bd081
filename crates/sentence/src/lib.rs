//! Derive macro of `hugepilot_record::Sentence`: a fact has its text and its help beside each
//! variant.
//!
//! ```ignore
//! #[derive(Sentence)]
//! enum Warning {
//!     /// The process forked while it was sampled.
//!     #[text("the process forked {}", counted(*forks, "time", "times"))]
//!     #[help("after the last fork, tune again: hugepilot tune -p {pid}")]
//!     Forks { pid: Pid, forks: u64 },
//!     #[text(of = a)]
//!     Excluded(AccessError),
//! }
//! ```
//!
//! - `#[text(…)]` has the arguments of `format!`. The fields are references with their names;
//!   those of a tuple are `a`, `b`, ….
//! - `#[help(…)]` has the arguments of `format!`, too. Each attribute is a line, in this order.
//! - `#[help(if condition, …)]` is a line only if the condition holds.
//! - `#[help(all = expression)]` adds the lines of an expression, a `Vec<String>` or an
//!   `Option<String>`.
//! - `#[place("…")]`, if each variant has it, becomes a method `place`: where that happens, as the
//!   end of another sentence.
//! - `#[text(of = expression)]` takes text and help of another sentence, `#[help(of = expression)]`
//!   the help alone.
//!
//! The macro serves the crate `record`, where the trait is, and enums without generics. `{self}` in
//! a text is the enum's `Display`, which must not call `text`.

#![forbid(unsafe_code)]

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Data, DeriveInput, Expr, Fields, Ident, Result, Token, Variant};

/// Implements `Sentence` for an enum.
#[proc_macro_derive(Sentence, attributes(text, help, place))]
pub fn sentence(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    implement(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn implement(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new(Span::call_site(), "only an enum has a sentence per variant"));
    };
    let mut texts = Vec::new();
    let mut helps = Vec::new();
    for variant in &data.variants {
        let (pattern, text, help) = (pattern(variant), text(variant)?, help(variant)?);
        texts.push(quote!(#pattern => #text));
        helps.push(quote!(#pattern => { #help }));
    }
    let name = &input.ident;
    let places = places(&data.variants)?;
    let places = (!places.is_empty()).then(|| quote!(impl #name { #places }));
    Ok(quote! {
        #places
        #[automatically_derived]
        #[allow(unused_variables, clippy::useless_format)]
        impl crate::Sentence for #name {
            fn text(&self) -> ::std::string::String {
                match self { #(#texts,)* }
            }
            fn help(&self) -> ::std::vec::Vec<::std::string::String> {
                let mut __lines = ::std::vec::Vec::new();
                match self { #(#helps)* }
                __lines
            }
        }
    })
}

/// The method `place` of all variants; nothing if none has the attribute.
fn places<'a>(variants: impl IntoIterator<Item = &'a Variant> + Clone) -> Result<TokenStream> {
    if variants.clone().into_iter().all(|variant| named(variant, "place").next().is_none()) {
        return Ok(TokenStream::new());
    }
    let mut arms = Vec::new();
    for variant in variants {
        let missing = || syn::Error::new_spanned(variant, "the variant has no #[place(…)]");
        let attribute = named(variant, "place").next().ok_or_else(missing)?;
        let (name, text) = (&variant.ident, attribute.parse_args::<syn::LitStr>()?);
        arms.push(quote!(Self::#name { .. } => #text));
    }
    Ok(quote! {
        /// Returns where that happens, as the end of another sentence.
        pub const fn place(&self) -> &'static str {
            match self { #(#arms,)* }
        }
    })
}

/// Pattern that binds all fields by their names.
fn pattern(variant: &Variant) -> TokenStream {
    let name = &variant.ident;
    match &variant.fields {
        Fields::Unit => quote!(Self::#name),
        Fields::Named(fields) => {
            let names = fields.named.iter().filter_map(|field| field.ident.as_ref());
            quote!(Self::#name { #(#names),* })
        }
        Fields::Unnamed(fields) => {
            let letter = |at| Ident::new(&char::from(b'a' + at).to_string(), Span::call_site());
            let names = (0..).map(letter).take(fields.unnamed.len());
            quote!(Self::#name(#(#names),*))
        }
    }
}

/// Attributes of a variant with this name.
fn named<'a>(variant: &'a Variant, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    variant.attrs.iter().filter(move |attribute| attribute.path().is_ident(name))
}

fn text(variant: &Variant) -> Result<TokenStream> {
    let missing = || syn::Error::new_spanned(variant, "the variant has no #[text(…)]");
    let mut texts = named(variant, "text");
    let first = texts.next().ok_or_else(missing)?;
    if let Some(second) = texts.next() {
        return Err(syn::Error::new_spanned(second, "the variant has a text already"));
    }
    match first.parse_args::<Line>()? {
        Line::Of(expression) => Ok(quote!(crate::Sentence::text(#expression))),
        Line::Format(arguments) => Ok(quote!(::std::format!(#arguments))),
        Line::If(..) | Line::All(_) => {
            Err(syn::Error::new_spanned(variant, "a text has no condition and no further lines"))
        }
    }
}

fn help(variant: &Variant) -> Result<TokenStream> {
    let texts = named(variant, "text").map(|attribute| (attribute, true));
    let helps = named(variant, "help").map(|attribute| (attribute, false));
    let lines = texts.chain(helps).map(|(attribute, is_text)| {
        Ok(match attribute.parse_args::<Line>()? {
            Line::Of(expression) => quote!(__lines.extend(crate::Sentence::help(#expression));),
            Line::Format(_) if is_text => TokenStream::new(),
            Line::Format(arguments) => quote!(__lines.push(::std::format!(#arguments));),
            Line::If(condition, arguments) => {
                quote!(if #condition { __lines.push(::std::format!(#arguments)); })
            }
            Line::All(expression) => quote!(__lines.extend(#expression);),
        })
    });
    lines.collect()
}

/// Content of an attribute.
enum Line {
    /// Arguments of `format!`.
    Format(TokenStream),
    /// A condition, and arguments of `format!`.
    If(Expr, TokenStream),
    /// An expression with all lines.
    All(Expr),
    /// An expression that is a sentence.
    Of(Expr),
}

impl Parse for Line {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.parse::<Option<Token![if]>>()?.is_some() {
            let condition = input.parse()?;
            input.parse::<Token![,]>()?;
            return Ok(Self::If(condition, input.parse()?));
        }
        if input.peek(Ident) && input.peek2(Token![=]) {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            return match name.to_string().as_str() {
                "all" => Ok(Self::All(input.parse()?)),
                "of" => Ok(Self::Of(input.parse()?)),
                _ => Err(syn::Error::new(name.span(), "expected all = … or of = …")),
            };
        }
        Ok(Self::Format(input.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of an enum with these variants; the code if there is none.
    fn of(variants: &str) -> std::result::Result<String, String> {
        let input = syn::parse_str::<DeriveInput>(&format!("enum Fact {{ {variants} }}")).unwrap();
        implement(&input).map(|code| code.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_variant_has_one_text() {
        let code =
            of("#[text(\"{n} idle\")] #[help(\"a\")] #[help(if *n > 1, \"b\")] Idle { n: u64 }");
        let code = code.unwrap();
        assert!(code.contains("Self :: Idle { n }") && code.contains("if * n > 1"), "{code}");
        let error = |variants| of(variants).unwrap_err();
        assert!(error("Idle").contains("has no #[text"));
        assert!(error("#[text(\"a\")] #[text(\"b\")] Idle").contains("a text already"));
        assert!(error("#[text(if true, \"a\")] Idle").contains("no condition"));
        assert!(error("#[text(by = 1)] Idle").contains("expected all"));
        let partly = "#[text(\"a\")] #[place(\"b\")] One, #[text(\"c\")] Two";
        assert!(error(partly).contains("has no #[place"));
        let structure = syn::parse_str::<DeriveInput>("struct Fact;").unwrap();
        assert!(implement(&structure).is_err());
    }
}
